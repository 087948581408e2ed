"""Inputs of which one unit of the sum before it is cut decides the last bit: found once by trying millions, and kept as a list.

The first half changes if there is one unit more, the second half if there is one less. Of div the divisor is one of rcp's.
"""

from __future__ import annotations

_LISTS = {
    "rcp": """
        3f85fe48 3fcb5245 3f9bf8c0 3f9bce91 3fb55464 3fdb4544 3f8dd6c8 3fa5f824 3f890158 3fac7065 3ff379f2 3fd9e864
        3ff35342 3fcaaf1e 3fcaf14f 3fd59d08 3fe36e48 3fad3438 3fa90720 3fb9e1d5 3fcb95a5 3f8b5c6b 3fed5b6e 3fff5bcc
        3f900d42 3fe024ff 3faf9255 3fb0fd0d 3fa63b07 3fbb67d3 3feab7cf 3fe16d51 3fc0ef99 3fa2a24c 3fb6188d 3f879ddf
        3ffda975 3fbb67d3 3f8db8af 3fb3444d 3fb9695f 3ff43d53 3f959ad5 3ffc6c07 3fe7bb55 3f98445a 3fda6f20 3fecc43b
    """,
    "rsqrt": """
        3f8e8000 3f2e7220 3f657480 3f24e590 3f020000 3fa5f3b0 3f24f960 3f527b44 3ff32a68 3fc37e00 3f02f712 3f020000
        3fbd2aeb 3fed85a8 3ffe7783 3ffb0000 3f355d42 3f07aa5b 3ffd84f0 3f3a4f10 3f244678 3fd14913 3fdf1f68 3fef6bf6
        3f5a1b1f 3fbf6137 3f7c11d5 3fa139fd 3f8fce5d 3f7577c9 3f7cce55 3fd9e5e5 3f784eb1 3fcc2f6d 3f7903c5 3fbf1923
        3f878fcd 3f5c80f3 3fea8b6f 3ffaa3a3 3f99e45f 3f8fce5d 3f3ec8e5 3f373f9d 3fcd623d 3f878fcd 3f5979d1 3f7c11d5
    """,
    "sqrt": """
        3fe56b2f 3fafda82 3fcc7875 3f1246ac 3f3e0000 3f21b440 3fcc86c4 3fe704b2 3f55fb90 3f603281 3f1b4968 3f52b1a1
        3f8961e6 3f77d3b4 3f060000 3fe42cb2 3f204e00 3f5550b4 3f7cd7e9 3f42cb88 3f0fa2c9 3fbe0000 3f543a4e 3f5626f2
        3ffe293f 3f80cf03 3fd6c5b5 3fd9a789 3f9656bd 3ff6f8d5 3fd6c5b5 3fadb427 3f8611eb 3f9f2aa7 3fd9a789 3f9656bd
        3fd9a789 3f923a13 3f95771b 3fc2bd71 3ffea277 3fa07987 3fa07987 3fd5aecb 3fde2c97 3fe2ca83 3f8761eb 3f8611eb
    """,
    "ex2": """
        3f495a9f 3e7517ee bfe113f7 bdcce1ca 3f8058d7 3eb817c7 bf8e9e7b 3fddf8b1 3e4be72b bfe74b66 bf88b764 bf73bf9a
        3d6fb2ab bd04e9c7 3f997ce5 be0143a1 bf937eb5 3e2fe0f3 3ffc24e3 3fe0742c 3f37de9f bf901bf4 be39b737 3f96e165
        beed3fb0 bda96dad bf6bdcee 3e4eaa90 3e1a18c7 3f8104a2 bfae9a0a 3f5087a1 3f10f2f9 3d11ef3d 3f5836c7 3c02515b
        3fb35a8f bd3f1f18 3f813dc8 bf6442a9 bff28233 3f4cf2e3 be4ccb32 3fe337bb 3ff3484f 3f88099a bfed2069 becc4f16
    """,
    "lg2": """
        3f801360 3f7f722e 3f7ffafe 3f84c050 3f802460 3f7e1026 3f75f714 3f80a3f6 3f5d0fa2 3f6338e1 3f80956c 3fa50a4c
        3f7ff4be 3f817bd2 3e6f8a8e 3f7ff69e 3f7fd20a 3f779645 3f93a5b5 3fe03f32 3f7e833a 3f3f91a4 3f8048c8 3f86e740
        3f71245b 3f7974c5 3e9765a9 3f7feb85 3f7e667d 3f7e15cd 3f8d611b 3f5f02b3 3f7fdf1d 3f7f09b5 3f7e0a25 3f7fff61
        3f7feb3d 3f0383a9 3f7fff35 3f7e0095 3f1833bf 3f7ffe31 40ca44db 3f7fd479 3f7fe9d9 3f6bccdb 3f7ff409 3f7ff769
    """,
    "sin": """
        40491164 40ba1d5b c0c90b6c 400aa991 40490d51 c00cdaea 40cc4c4e 40ce8f14 40b85021 40488241 c0489001 c0490fa1
        bfc31e6e 40c8d5c3 40482477 3ae36a60 40c8f43d bfce1b53 c0c90c45 bdd422d5 40491015 c0490f32 c0c91046 3bb40341
        c0d029cb c048f156 c0cbc0ee 404973db 3eb3fea4 c0464f28 40491773 bdde3256 c0655617 40dba850 c0961efc 40c91dd0
        c024feef c0c07013 40498a87 c0491ae8 c04903df c058dbc9 c0df7c5d c0c92ca2 40d7ecf9 c0490fcc 4048b9a8 408e2964
    """,
    "cos": """
        c096c870 c09b1802 c096c049 bfc91b79 4096b985 3fb113b5 40968939 bfc93d72 c078ad91 bfc91bbf 3fc8f7f1 bfcb7fcd
        4044cfa0 c0a5912d 3fc8c241 4096c5d1 3fc94815 c096c440 c096c873 bfcadb8e bfc93fb4 3fc9c73e c096b187 3fd948b2
        bfc914d1 bfc9e94e 4096ed43 3fc9008d bfc3c4cc bfc8fcbb 3fba84e7 c096cc1b 3fc90467 c0976ea4 bfc90d5b bfc909f0
        4096cd31 40b74219 c09d25c0 3fdf5bf2 bfc846ca c0c007a5 3fc910ca 40a90d84 408b2fe9 4096deed c033ff34 3fc92c18
    """,
    "sin.2pi": """
        3f0000fa 3f6cf7f2 bf7ffa5a 3eb08ce7 3efffcc4 beb357a2 3f820f68 3f837fdd 3f6aacb2 3eff4bb4 beff5d36 beffffb5
        be786edc 3f7fb608 3efed44a 3990c6f7 3f7fdcd5 be83362c bf7ffb6e bc870ccd 3f000024 beffff28 bf800044 3a653304
        bf848555 beffd923 bf81b6ad 3f003fa9 3d652d25 befc7ebf 3f0004d5 bc8d746b bf120000 3f8bd699 bf3f23d8 3f8008e2
        bed21447 bf7504f7 3f004e18 bf000708 befff0bd bf0a0e71 bf8e4685 bf801251 3f897669 beffffec 3eff923f 3f350180
    """,
    "cos.2pi": """
        bf3ffb99 bf4578b5 bf3ff138 be800765 3f3fe89b 3e61761e 3f3fab1d be801d05 bf1e5035 be800791 3e7fe18d be818d37
        3efa966b bf52ce7a 3e7f9d31 3f3ff843 3e8023cb bf3ff645 bf3ffb9d be8124a7 be801e75 3e8074bf bf3fde6e 3e8a53c7
        be800328 be808a6e 3f402a7c 3e7fec83 be7942af be7fe7a6 3e6d7bc9 bf400045 3e7ff16a bf40cf37 be7ffcd0 be7ff876
        3f4001a7 3f6954e1 bf48161b 3e8e31e1 be7efffe bf748000 3e800098 3f573ea4 3f3137f4 3f40183c bee52ddc 3e8011fa
    """,
    "tanh": """
        405f4aa6 4057da34 406129df 406056ad 403d8144 403d2304 407ba5bf 405e3c5d 4028f316 403d8147 403d8146 405f4aa4
        406fff87 4059b37f 4038ffe6 4053b05c 406fff85 4061ef9e 4028f316 4061ef9c 4059b37c 402c7f17 406e4527 4059b37e
        3da5d0c0 3dc33e70 3dc76f37 3b80f39f 3babd750 3c87f598 3cd1850d 3dab1096 3b800c1f 3cb08b92 3c133198 3b803679
        3c87011f 3c99c724 3cff801f 3d465457 3df9e54e 3b91efe9 3e5f29a0 3de0b5b3 3ca2d38d 3b80bb0b 3b80a067 3bc36ab3
    """,
}
CLOSE = {name: tuple(int(code, 16) for code in text.split()) for name, text in _LISTS.items()}
"""Codes of f32 by function."""
