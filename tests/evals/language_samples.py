"""Two or three plain sentences in each language that the IFEval prompts ask for, and in some near them; our own."""

SAMPLES = {
    "en": "The children walked along the river in the morning. They were happy because the sun was warm, and the old "
    "man told them a story about his boat.",
    "de": "Die Kinder gingen am Morgen am Fluss entlang. Sie waren froh, weil die Sonne warm war, und der alte Mann "
    "erzählte ihnen eine Geschichte über sein Boot.",
    "fr": "Les enfants marchaient le long de la rivière. Ils étaient heureux parce que le soleil était chaud, et le "
    "vieil homme leur racontait une histoire sur son bateau.",
    "es": "Los niños caminaban por la orilla del río. Estaban contentos porque el sol era cálido, y el viejo les "
    "contaba una historia sobre su barco.",
    "it": "I bambini camminavano lungo il fiume. Erano felici perché il sole era caldo, e il vecchio raccontava loro "
    "una storia sulla sua barca.",
    "pt": "As crianças caminhavam ao longo do rio. Elas estavam felizes porque o sol era quente, e o velho contava uma "
    "história sobre o seu barco.",
    "fi": "Lapset kävelivät aamulla joen rantaa pitkin. He olivat iloisia, koska aurinko oli lämmin, ja vanha mies "
    "kertoi heille tarinan veneestään.",
    "sw": "Watoto walitembea kando ya mto asubuhi. Walikuwa na furaha kwa sababu jua lilikuwa la joto, na mzee "
    "aliwasimulia hadithi ya mashua yake.",
    "vi": "Những đứa trẻ đi dọc theo bờ sông vào buổi sáng. Chúng rất vui vì trời ấm, và ông lão kể cho chúng nghe một "
    "câu chuyện về con thuyền của mình.",
    "ru": "Утром дети шли вдоль реки. Они были рады, потому что солнце было тёплым, и старик рассказывал им историю о "
    "своей лодке.",
    "bg": "Сутринта децата вървяха край реката. Те бяха щастливи, защото слънцето беше топло, и старецът им разказваше "
    "една история за своята лодка.",
    "uk": "Вранці діти йшли вздовж річки. Вони були щасливі, бо сонце було тепле, і старий розповідав їм історію про "
    "свій човен.",
    "ar": "كان الأطفال يمشون على طول النهر في الصباح. كانوا سعداء لأن الشمس كانت دافئة، وكان الرجل العجوز يحكي لهم قصة "
    "عن قاربه.",
    "fa": "بچه‌ها صبح در کنار رودخانه راه می‌رفتند. آنها خوشحال بودند زیرا آفتاب گرم بود و پیرمرد داستانی را درباره "
    "قایق خود برای آنها تعریف می‌کرد.",
    "ur": "بچے صبح دریا کے کنارے چل رہے تھے۔ وہ خوش تھے کیونکہ دھوپ گرم تھی، اور بوڑھا آدمی ان کو اپنی کشتی کی کہانی "
    "سنا رہا تھا۔",
    "hi": "बच्चे सुबह नदी के किनारे चल रहे थे। वे खुश थे क्योंकि धूप गर्म थी, और बूढ़ा आदमी उन्हें अपनी नाव की कहानी सुना रहा था।",
    "mr": "मुले सकाळी नदीच्या काठाने चालत होती. ती आनंदी होती कारण ऊन उबदार होते आणि म्हातारा माणूस त्यांना आपल्या होडीची "
    "गोष्ट सांगत होता.",
    "ne": "केटाकेटीहरू बिहान नदीको किनारमा हिँडिरहेका थिए। तिनीहरू खुसी थिए किनभने घाम न्यानो थियो र बूढो मानिसले उनीहरूलाई आफ्नो "
    "डुङ्गाको कथा सुनाउँदै थियो।",
    "bn": "সকালে শিশুরা নদীর ধার দিয়ে হাঁটছিল। তারা খুশি ছিল কারণ রোদ ছিল উষ্ণ, আর বুড়ো মানুষটি তাদের নিজের নৌকার গল্প শোনাচ্ছিল।",
    "pa": "ਬੱਚੇ ਸਵੇਰੇ ਨਦੀ ਦੇ ਕੰਢੇ ਤੁਰ ਰਹੇ ਸਨ। ਉਹ ਖੁਸ਼ ਸਨ ਕਿਉਂਕਿ ਧੁੱਪ ਨਿੱਘੀ ਸੀ ਅਤੇ ਬੁੱਢਾ ਆਦਮੀ ਉਹਨਾਂ ਨੂੰ ਕਹਾਣੀ ਸੁਣਾ ਰਿਹਾ ਸੀ।",
    "gu": "બાળકો સવારે નદીના કિનારે ચાલતા હતા. તેઓ ખુશ હતા કારણ કે તડકો હૂંફાળો હતો અને વૃદ્ધ માણસ તેમને વાર્તા કહેતો હતો.",
    "ta": "குழந்தைகள் காலையில் ஆற்றங்கரையில் நடந்தார்கள். வெயில் இதமாக இருந்ததால் அவர்கள் மகிழ்ச்சியாக இருந்தார்கள்.",
    "te": "పిల్లలు ఉదయం నది ఒడ్డున నడిచారు. ఎండ వెచ్చగా ఉండటంతో వారు సంతోషంగా ఉన్నారు.",
    "kn": "ಮಕ್ಕಳು ಬೆಳಿಗ್ಗೆ ನದಿಯ ದಡದಲ್ಲಿ ನಡೆದರು. ಬಿಸಿಲು ಬೆಚ್ಚಗಿದ್ದರಿಂದ ಅವರು ಸಂತೋಷವಾಗಿದ್ದರು.",
    "th": "เด็กๆ เดินเลียบแม่น้ำในตอนเช้า พวกเขามีความสุขเพราะแดดอุ่น และชายชราเล่าเรื่องเรือของเขาให้ฟัง",
    "ko": "아이들은 아침에 강을 따라 걸었다. 햇볕이 따뜻해서 그들은 행복했고 "
    "노인은 자기 배에 대한 이야기를 들려주었다.",
    "ja": "子どもたちは朝、川に沿って歩いた。日差しが暖かかったので、みんな幸せだった。",
    "zh": "孩子们早上沿着河边走。阳光很温暖，他们很高兴，老人给他们讲了一个关于船的故事。",
}
